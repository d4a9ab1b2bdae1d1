// Package config holds the settings of the command: what they are called, what
// they are by default, where each value came from, and which go together.
//
// A setting has one name, NAME, wherever it is written: the flag --NAME, the
// variable SEGNO_NAME, the key "NAME" in the "segno" object of the file. Flags
// come before the environment, the environment before the file, the file before
// the default. Only the command reads this package; all others take options.
//
//	serve.go    the settings of segno serve, as a table of tags
//	layers.go   environment and file as layers, and the source of each value
//	file.go     the file: {"mcpServers": …, "segno": {…}}
//	check.go    which values are possible, and which go together
//	nearest.go  the known name nearest to a wrong one
//	size.go     sizes such as 16MiB
//	fault.go    errors with a hint
package config
