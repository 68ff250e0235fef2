# Prints the benchmarks and, at the end, each measure that is above its bound.
{ print }
/^Benchmark/ { for (i = 3; i < NF; i += 2) if ($(i + 1) ~ /\/bound$/) { measured++; if ($i > 1) slow = slow "  " $1 " " $(i + 1) " = " $i "\n" } }
END {
	printf "\nbench: %d measures have a bound\n", measured
	if (slow) { printf "bench: above it:\n%s", slow; exit 1 }
}
