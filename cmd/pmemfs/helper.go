package main

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// isCommand tells the words that start a subcommand; anything else in first place is a source or a mount point.
func isCommand(word string) bool {
	return slices.ContainsFunc(kong.Must(new(cli)).Model.Children, func(n *kong.Node) bool { return n.Name == word })
}

// isHelperForm tells what mount.fuse3 runs, `pmemfs SOURCE MOUNTPOINT -o OPTIONS` or `pmemfs MOUNTPOINT -o OPTIONS`, from a
// subcommand. A path has a slash in it, a subcommand has none; a source without one is known by the options behind the mount point.
func isHelperForm(args []string) bool {
	if len(args) == 0 || isCommand(args[0]) || strings.HasPrefix(args[0], "-") {
		return false
	}
	return strings.Contains(args[0], "/") || len(args) > 3 && strings.Contains(args[1], "/") && args[2] == "-o"
}

// helperArgs are what mount(8) and mount.fuse3 pass.
type helperArgs struct {
	words      []string // SOURCE and MOUNTPOINT, or MOUNTPOINT alone
	options    []string
	foreground bool
	fake       bool
}

// parseHelperArgs takes mount(8)'s fixed set of flags: -s -f -n -v -r -w -o OPTIONS -t TYPE -N NAMESPACE. There -f means a mount
// that is only acted out (fromMount), in the other form to stay in the foreground.
func parseHelperArgs(args []string, fromMount bool) (helperArgs, error) {
	var h helperArgs
	for i := 0; i < len(args); i++ {
		a := args[i]
		switch {
		case a == "-o" || a == "-t" || a == "-N":
			i++
			if i == len(args) {
				return h, fmt.Errorf("option %s needs a value", a)
			}
			if a == "-o" {
				h.options = append(h.options, args[i])
			}
		case strings.HasPrefix(a, "-o"):
			h.options = append(h.options, a[2:])
		case a == "-f" && fromMount:
			h.fake = true
		case a == "-f":
			h.foreground = true
		case a == "-r":
			h.options = append(h.options, "ro")
		case a == "-s" || a == "-n" || a == "-v" || a == "-w":
		case strings.HasPrefix(a, "-"):
			return h, fmt.Errorf("unknown flag %s", a)
		default:
			h.words = append(h.words, a)
		}
	}
	if len(h.words) == 0 || len(h.words) > 2 {
		return h, errors.New("want SOURCE MOUNTPOINT [-o OPTIONS], or MOUNTPOINT -o config=FILE")
	}
	return h, nil
}

// mountHelper is what mount(8) and mount.fuse3 run.
func mountHelper(args []string, fromMount bool) error {
	h, err := parseHelperArgs(args, fromMount)
	if err != nil {
		return &exitError{exitMountUsage, err}
	}
	if h.fake {
		return nil
	}
	cmd := mountCmd{Args: h.words, Options: h.options, Foreground: h.foreground, LogFile: defaultLog}
	return cmd.Run()
}
