package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// churn makes and removes names in a directory that holds others, until its standard input ends. Count of them exist at a time.
func churn(dir, count string) error {
	n, err := strconv.Atoi(count)
	if err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = os.Stdin.Read(make([]byte, 1))
	}()
	path := func(i int) string { return filepath.Join(dir, fmt.Sprint("churn-", i)) }
	for i := 0; ; i++ {
		select {
		case <-ended:
			return nil
		default:
		}
		f, err := os.Create(path(i))
		if err == nil {
			err = f.Close()
		}
		if err == nil && i >= n {
			err = os.Remove(path(i - n))
		}
		if err != nil {
			return errors.Join(fmt.Errorf("name %d", i), err)
		}
	}
}
