package main

import (
	"encoding/json"
	"fmt"
)

// pidField reads the daemon's process id from `pmemfs status --json`.
func pidField(status string) (int, error) {
	var st struct {
		PID int `json:"pid"`
	}
	if err := json.Unmarshal([]byte(status), &st); err != nil {
		return 0, fmt.Errorf("pmemfs status --json: %w in %q", err, status)
	}
	if st.PID <= 1 {
		return 0, fmt.Errorf("pmemfs status --json names no daemon: %s", status)
	}
	return st.PID, nil
}
