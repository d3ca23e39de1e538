package rig

import "testing"

func TestAllPassed(t *testing.T) {
	const passed = "=== RUN   TestA1\n--- PASS: TestA1 (0.00s)\n=== RUN   TestB\n    --- PASS: TestB/x (0.00s)\n--- PASS: TestB (0.00s)\nPASS\n"
	for text, want := range map[string]bool{
		passed:                               true,
		passed + "--- PASS: TestC (0.00s)\n": true,
		passed + "--- SKIP: TestC (0.00s)\n    why\n":     false,
		passed + "    --- SKIP: TestB/y (0.00s)\n":        false,
		passed + "--- FAIL: TestC (0.00s)\n":              false,
		"--- PASS: TestA1 (0.00s)\nPASS\n":                false,
		"--- PASS: TestA1 (0.00s)\n--- PASS: TestC/TestB": false,
		"": false,
	} {
		if err := allPassed(text, []string{"TestA", "TestB"}); (err == nil) != want {
			t.Errorf("%q: %v", text, err)
		}
	}
}
