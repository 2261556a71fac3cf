#!/bin/sh
# The program of a mount pod: writes the content of a volume, or reads it, and reports its SHA-256. DO is `write` or `read`,
# LINE the line that fills each part, PART the bytes of a part. VOLUME is a directory, or a device whose last part begins
# at the block LAST of 4096 bytes. REPORT is the file of the last words.
set -eu

if [ -d "$VOLUME" ]; then
    one=$VOLUME/flex-content
    other=$VOLUME/flex-directory/flex-content
    has_content() { [ -e "$one" ] || [ -e "$other" ]; }
    fill() {
        mkdir -p "${other%/*}"
        part >"$one"
        part >"$other"
        sync
    }
    show() { cat "$one" "$other"; }
else
    count=$((PART / 4096))
    has_content() { [ "$(show | tr -d '\000' | head -c 1 | wc -c)" -gt 0 ]; }
    fill() {
        for at in 0 "$LAST"; do part | dd of="$VOLUME" bs=4096 seek="$at" conv=notrunc,fsync; done
    }
    show() {
        for at in 0 "$LAST"; do dd if="$VOLUME" bs=4096 skip="$at" count="$count" || exit; done
    }
fi

part() { yes "$LINE" | head -c "$PART"; }

[ "$DO" = read ] || fill
# The status of a pipeline is that of its last program. A part that cannot be read ends the script here.
[ -d "$VOLUME" ] || show >/dev/null
if has_content; then
    show >/dev/null
    sum=$(show | sha256sum)
    printf '%s' "${sum%% *}" >"$REPORT"
else
    printf empty >"$REPORT"
fi
