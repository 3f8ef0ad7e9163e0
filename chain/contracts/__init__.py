"""These contracts: compile, deploy, call, and read the market from them."""
