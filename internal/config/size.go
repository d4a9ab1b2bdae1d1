package config

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

// Size is a number of bytes, written as 16MiB, 1.5GiB, 64kB or 1024.
type Size int64

var units = map[string]float64{
	"": 1, "b": 1,
	"k": 1 << 10, "ki": 1 << 10, "kib": 1 << 10, "kb": 1e3,
	"m": 1 << 20, "mi": 1 << 20, "mib": 1 << 20, "mb": 1e6,
	"g": 1 << 30, "gi": 1 << 30, "gib": 1 << 30, "gb": 1e9,
	"t": 1 << 40, "ti": 1 << 40, "tib": 1 << 40, "tb": 1e12,
}

// ParseSize reads a size: a number that is not negative and a unit. KiB, MiB,
// GiB and TiB (also K, Ki …) are powers of 1024, kB, MB, GB and TB of 1000.
func ParseSize(s string) (Size, error) {
	text := strings.TrimSpace(s)
	digits := 0
	for digits < len(text) && (text[digits] >= '0' && text[digits] <= '9' || text[digits] == '.') {
		digits++
	}
	unit, known := units[strings.ToLower(strings.TrimSpace(text[digits:]))]
	n, err := strconv.ParseFloat(text[:digits], 64)
	if err != nil || !known {
		return 0, fmt.Errorf("%q is not a size: write a number and a unit, such as 16MiB", s)
	}
	if n*unit >= math.MaxInt64 {
		return 0, fmt.Errorf("%q is too large for a size", s)
	}
	return Size(n * unit), nil
}

// UnmarshalText reads the size from a flag, a variable or a file.
func (s *Size) UnmarshalText(text []byte) (err error) {
	*s, err = ParseSize(string(text))
	return err
}

// String is the size in the largest unit that divides it.
func (s Size) String() string {
	for _, u := range []struct {
		name string
		size Size
	}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if s >= u.size && s%u.size == 0 {
			return strconv.FormatInt(int64(s/u.size), 10) + u.name
		}
	}
	return strconv.FormatInt(int64(s), 10) + "B"
}
