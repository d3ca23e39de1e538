// Package version holds the version that the build stamps into both programs.
package version

// Version is set by the linker (make build).
var Version = "unknown"
