package config

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// Micros is money in millionths of a US dollar.
type Micros int64

const maxUSD = 1_000_000

var decimalUSD = regexp.MustCompile(`^([0-9]{1,7})(?:\.([0-9]{1,6}))?$`)

// ParseUSD reads an amount in US dollars such as 25 or 0.125, exactly. It is
// positive, has at most six decimal places and is at most a million.
func ParseUSD(s string) (Micros, error) {
	m := decimalUSD.FindStringSubmatch(s)
	if m == nil {
		return 0, errors.New("want an amount in US dollars such as 25 or 12.50, with at most six decimal places")
	}
	whole, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil {
		return 0, err
	}
	part, err := strconv.ParseInt((m[2] + "000000")[:6], 10, 64)
	if err != nil {
		return 0, err
	}
	switch v := whole*1_000_000 + part; {
	case v == 0:
		return 0, errors.New("want more than 0 dollars")
	case v > maxUSD*1_000_000:
		return 0, errors.New("want at most " + strconv.Itoa(maxUSD) + " dollars")
	default:
		return Micros(v), nil
	}
}

// String is the exact amount in dollars, 12.5 for 12,500,000.
func (m Micros) String() string {
	sign, n := "", uint64(m)
	if m < 0 {
		sign, n = "-", -n
	}
	out := sign + strconv.FormatUint(n/1_000_000, 10)
	if rest := n % 1_000_000; rest > 0 {
		out += "." + strings.TrimRight(strconv.FormatUint(1_000_000+rest, 10)[1:], "0")
	}
	return out
}
