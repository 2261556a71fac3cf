# Prints the failed tests in the output of cargo's test programs, of the simulation and of the fuzzers. Below each stands
# the command that repeats it alone.
#
#   awk -v programs=DIRECTORY -f failed.awk LOG

# A test program begins.
/^ +Running .*\(.*\)$/ || /^ +Doc-tests / { many = 0; seed = "" }

match($0, /SEED=[0-9]+/) { seed = substr($0, RSTART, RLENGTH) " " }

# Each program lists the names of its failed tests at its end. The last such list counts: the output of a failed test,
# which stands before it, may look like one.
/^failures:$/ { many = 0; listing = 1; next }
listing && /^    [^ ]+$/ { names[++many] = $1; next }
/^test result:/ { listing = 0 }

# Cargo prints the flags for the program; with the flag for the package alone, it would build everything else anew.
/^error: test failed, to rerun pass `/ {
    flags = $0
    sub(/^[^`]*`/, "", flags)
    sub(/`.*$/, "", flags)
    sub(/(-p|--package) [^ ]+ ?/, "", flags)
    for (i = 1; i <= many; i++)
        printf "  %s\n    repeat it: %sscripts/test-it.sh %s -- --include-ignored --exact %s\n", names[i], seed, flags, names[i]
    if (!many) printf "  the test program itself ended early\n    repeat it: %sscripts/test-it.sh %s --\n", seed, flags
    found++
    many = 0
}

/^seed [0-9]+ is broken: / || /: NOT FOUND in / { printf "  %s\n", $0; found++ }
sub(/^replay it with: /, "") { printf "    repeat it: %s/%s\n", programs, $0; found++ }
sub(/^replay: /, "") { printf "    repeat it: %s\n", $0; found++ }

{ last[NR % 5] = $0 }
END {
    if (!found) {
        print "  no test: the last lines of the output are"
        for (i = NR - 4; i <= NR; i++) if (i > 0) print "    " last[i % 5]
    }
}
