#!/usr/bin/env bash
# Packs a directory of static files into an image archive, without a container engine:
#
#   scratch-image.sh IMAGE ARCHIVE ROOT ENTRYPOINT [ARG...]
#
# IMAGE is the full name with tag, ARCHIVE the tar file to write (for `ctr images import`), ROOT becomes the image's
# only layer. The same input gives the same archive, byte by byte.
set -euo pipefail

if (($# < 4)); then
    echo "usage: scratch-image.sh IMAGE ARCHIVE ROOT ENTRYPOINT [ARG...]" >&2
    exit 2
fi
image=$1 archive=$2 root=$3
shift 3

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

pack() { tar --create --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 --file="$1" --directory="$2" .; }

# The entrypoint as JSON strings: in paths and flags, only quotes and backslashes need an escape.
entrypoint=
for word in "$@"; do
    word=${word//\\/\\\\}
    entrypoint+="${entrypoint:+,}\"${word//\"/\\\"}\""
done

mkdir "$work/image"
pack "$work/image/layer.tar" "$root"
layer=$(sha256sum "$work/image/layer.tar" | cut -d' ' -f1)
cat >"$work/image/config.json" <<JSON
{"architecture":"amd64","os":"linux","config":{"Entrypoint":[$entrypoint],"WorkingDir":"/"},"rootfs":{"type":"layers","diff_ids":["sha256:$layer"]},"history":[{"created_by":"scratch-image.sh"}]}
JSON
cat >"$work/image/manifest.json" <<JSON
[{"Config":"config.json","RepoTags":["$image"],"Layers":["layer.tar"]}]
JSON
pack "$work/archive.tar" "$work/image"
# The script renames the archive into its place, so that a reader never sees half of it.
cp "$work/archive.tar" "$archive.partial.$$"
mv "$archive.partial.$$" "$archive"
