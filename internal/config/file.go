package config

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

// maxFile is the largest configuration file in bytes; a longer one is a mistake in the path.
const maxFile = 1 << 20

// Error is what is wrong with a configuration file.
type Error struct {
	Path string // the file, or empty where only flags gave the values
	Line int    // from 1; 0 where no line is to blame
	Key  string // dotted, or empty
	Msg  string
}

func (e *Error) Error() string {
	s := "config"
	if e.Path != "" {
		s = e.Path
	}
	if e.Line > 0 {
		s += fmt.Sprintf(":%d", e.Line)
	}
	if e.Key != "" {
		s += ": " + e.Key
	}
	return s + ": " + e.Msg
}

// file is a configuration file that was parsed, but not yet understood.
type file struct {
	path string
	md   toml.MetaData
	root map[string]toml.Primitive
}

func readFile(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", fmt.Errorf("config: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return "", fmt.Errorf("config: %w", err)
	}
	if len(text) > maxFile {
		return "", &Error{Path: path, Msg: "longer than 1 MiB: this is not a configuration file"}
	}
	return string(text), nil
}

// schema is what a file may hold: dotted keys, in which "*" stands for any one name, and the type of each as TOML calls it.
type schema map[string]string

const (
	aString   = "String"
	aBool     = "Bool"
	anInteger = "Integer"
	aList     = "Array"
	aTable    = "Hash"
)

// article puts a type into a sentence.
var article = map[string]string{aString: `a string in quotes`, aBool: "true or false, without quotes", anInteger: "a whole number, without quotes", aList: "a list in brackets", aTable: "a table"}

// parse decodes text, the content of path, into v.
func parse(path, text string, known schema, v any) (*file, error) {
	f := &file{path: path}
	var err error
	if f.md, err = toml.Decode(text, &f.root); err != nil {
		return nil, f.wrap(err)
	}
	// The decoder matches keys without regard to case and passes over those it does not know, so names are checked first.
	if err := f.checkKeys(known); err != nil {
		return nil, err
	}
	if _, err := toml.Decode(text, v); err != nil {
		return nil, f.wrap(err)
	}
	return f, nil
}

// checkKeys reports every key that known does not have, with the nearest that it has, and every value of another type.
func (f *file) checkKeys(known schema) error {
	var errs []error
	for _, key := range f.md.Keys() {
		want := known.typeOf(key)
		switch got := f.md.Type(key...); {
		case want == "":
			msg := "unknown key"
			if near := nearest(key, slices.Sorted(maps.Keys(known))); near != "" {
				msg += fmt.Sprintf(", did you mean %q?", near)
			}
			errs = append(errs, f.errorf(key, "%s", msg))
		case got != want && got != "":
			errs = append(errs, f.errorf(key, "wrong type: this must be %s", article[want]))
		}
	}
	return errors.Join(errs...)
}

// typeOf is the type of key: aTable for a table that leads to known keys, and "" for an unknown key.
func (s schema) typeOf(key toml.Key) string {
	for k, kind := range s {
		names := strings.Split(k, ".")
		switch {
		case matches(key, names):
			return kind
		case len(key) < len(names) && matches(key, names[:len(key)]):
			return aTable
		}
	}
	return ""
}

func matches(key toml.Key, names []string) bool {
	if len(key) != len(names) {
		return false
	}
	for i, n := range names {
		if n != "*" && n != key[i] {
			return false
		}
	}
	return true
}

// errorf is an error about the value or name of key.
func (f *file) errorf(key toml.Key, format string, args ...any) error {
	return &Error{Path: f.path, Line: f.line(key), Key: key.String(), Msg: fmt.Sprintf(format, args...)}
}

// wrap turns an error of the decoder into an *Error.
func (f *file) wrap(err error) error {
	if pe, ok := errors.AsType[toml.ParseError](err); ok {
		return &Error{Path: f.path, Line: pe.Position.Line, Key: pe.LastKey, Msg: pe.Message}
	}
	return &Error{Path: f.path, Msg: strings.TrimPrefix(err.Error(), "toml: ")}
}

// line is the line on which key stands, or 0. The decoder keeps positions to itself but puts them into its errors, so
// a value that refuses to be decoded brings them out.
func (f *file) line(key toml.Key) int {
	table := f.root
	for i, name := range key {
		value, ok := table[name]
		if !ok {
			return 0
		}
		if i == len(key)-1 {
			pe, _ := errors.AsType[toml.ParseError](f.md.PrimitiveDecode(value, new(refuse)))
			return pe.Position.Line
		}
		table = nil
		if err := f.md.PrimitiveDecode(value, &table); err != nil {
			return 0
		}
	}
	return 0
}

// refuse is a value that cannot be decoded.
type refuse struct{}

func (*refuse) UnmarshalTOML(any) error { return errors.New("refused") }
