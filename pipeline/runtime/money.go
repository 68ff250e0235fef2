package runtime

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"strings"
)

// dollars adds amounts given as decimal text. It rounds once, at the end.
type dollars struct{ sum big.Rat }

// maxExponent bounds what an exponent may ask for: 1e999999999 is ten bytes to
// write and a gigabyte to hold.
const maxExponent = 30

func (d *dollars) add(amount json.Number) error {
	text := string(amount)
	if text == "" {
		return nil
	}
	if len(text) > 64 {
		return errors.New("a cost has too many digits")
	}
	if i := strings.IndexAny(text, "eE"); i >= 0 {
		exponent, err := strconv.Atoi(text[i+1:])
		if err != nil || exponent > maxExponent || exponent < -maxExponent {
			return fmt.Errorf("a cost of %s dollars is out of range", text)
		}
	}
	value, ok := new(big.Rat).SetString(text)
	switch {
	case !ok:
		return fmt.Errorf("a cost of %q is not a number", text)
	case value.Sign() < 0:
		return fmt.Errorf("a cost of %s dollars is negative", text)
	}
	d.sum.Add(&d.sum, value)
	return nil
}

// micros returns the sum in micro-dollars, halves rounded up.
func (d *dollars) micros() (int64, error) {
	scaled := new(big.Rat).Mul(&d.sum, big.NewRat(1_000_000, 1))
	scaled.Add(scaled, big.NewRat(1, 2))
	whole := new(big.Int).Quo(scaled.Num(), scaled.Denom())
	if !whole.IsInt64() {
		return 0, fmt.Errorf("a cost of %s dollars is out of range", d.sum.FloatString(0))
	}
	return whole.Int64(), nil
}

// overBudget is the failure of a call that was ended because it had spent what
// it may.
func overBudget(who string, budget int64) *Error {
	return &Error{Class: Refused, Reason: fmt.Sprintf("%s used up its budget of $%d.%06d", who, budget/1_000_000, budget%1_000_000)}
}
