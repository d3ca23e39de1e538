package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"strconv"
)

// version is the content of a file that proves to be whole: a SHA-256 of the rest, which has as many bytes as n says.
func version(n int) []byte {
	body := bytes.Repeat([]byte(fmt.Sprintf("%d\n", n)), n%9000)
	sum := sha256.Sum256(body)
	return append(sum[:], body...)
}

func isVersion(b []byte) bool {
	if len(b) < sha256.Size {
		return false
	}
	sum := sha256.Sum256(b[sha256.Size:])
	return bytes.Equal(sum[:], b[:sha256.Size])
}

// replace puts count versions in the place of a file, one after the other.
func replace(file, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for i := range n {
		next := fmt.Sprintf("%s.%d", file, os.Getpid())
		if err := os.WriteFile(next, version(i*31+os.Getpid()), 0o644); err != nil {
			return err
		}
		if err := os.Rename(next, file); err != nil {
			return err
		}
	}
	return nil
}

// watch reads a file count times and demands a whole version each time.
func watch(file, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	for i := range n {
		b, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("reading %d: %w", i, err)
		}
		if !isVersion(b) {
			return fmt.Errorf("reading %d: %d bytes that are no whole version", i, len(b))
		}
	}
	return nil
}
