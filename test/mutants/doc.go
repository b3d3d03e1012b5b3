// Package mutants asks whether the tests of the pod's life would notice a mistake. Each .patch file here puts one deliberate
// fault into runtime/plan or syncloop: its first line says what is then wrong, the rest is a unified diff. `make mutants`
// applies one after the other, compiles, and runs the tests of the package the fault is in. A fault they let pass is a test
// that is missing.
//
// The tree itself is never changed: the compiler is shown the other file in place of the real one. Hunks are found by their
// lines, wherever they have moved to; one that fits nowhere, or in two places, fails in `make test` already, and is to be
// drawn anew from the code as it is now, not thrown away.
package mutants
