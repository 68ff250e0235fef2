# Shortens the output of go test -v: of a package that passed its closing line
# and what it skipped, of one that failed everything but the noise.
/^=== (RUN|PAUSE|CONT|NAME)/ || /^ *--- PASS:/ { next }
/^(ok  |\?   |)\t/ { if (skips) printf "%s", skips; print; forget(); fflush(); next }
/^FAIL\t/ { printf "%s", all; print; forget(); fflush(); next }
{ all = all $0 "\n" }
/^ *--- SKIP:/ { skips = skips $0 "\n" }
END { printf "%s", all == "FAIL\n" ? "" : all }
function forget() { all = ""; skips = "" }
