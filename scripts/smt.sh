#!/bin/sh
# An SMT solver for halmos (scripts/symbolic.sh): yices, and z3 where yices gives no answer or falls over.
# Usage: smt.sh QUERY.smt2. Both come with halmos; ASSAY_SYMBOLIC names the folder of their executables.
answer=$(timeout "${SMT_FIRST:-30}" "$ASSAY_SYMBOLIC/yices-smt2" --smt2-model-format "$1" 2>/dev/null)
case "$answer" in
  sat* | unsat*) printf '%s\n' "$answer" ;;
  *) exec "$ASSAY_SYMBOLIC/z3" "$1" ;;
esac
