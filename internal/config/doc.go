// Package config reads the TOML files of the two programs: LoadMount for pmemfs, LoadTarget for pmemfs-target, and
// LoadPlatform for what both need to know of the machine.
//
// A file is taken whole or refused. An unknown key, a key given twice, a value of the wrong type or out of range is an
// *Error that names file, line, key and the fix; nothing is guessed and no key is skipped. Values not in the file have the
// defaults named at the fields. Command-line flags are laid over the result by the caller, who then calls Validate,
// which reports what is still missing.
//
// Durations are strings with a unit, as time.ParseDuration takes them: "5s", "250ms".
package config
