"""The chain adapter: deploys, calls and follows the market's contracts.

Contract: everything that crosses this package's boundary is a value of this package or of `protocol`, and
every failure is an `AssayError` that says what to do. Imports `protocol` and nothing else of the project.
"""
