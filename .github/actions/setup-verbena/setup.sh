#!/usr/bin/env bash
# Installs Verbena for the later steps of a CI job. It reads ARCHIVE, SHA256 and EVERY_STEP, and writes to the files that GITHUB_PATH,
# GITHUB_ENV and GITHUB_OUTPUT name; on other systems these are ordinary files, or unset.
set -euo pipefail

prefix=${RDMA_PREFIX:-${RUNNER_TEMP:-${TMPDIR:-/tmp}}/verbena}

fail() {
    echo "setup-verbena: $1" >&2
    exit 1
}

if [ -n "${ARCHIVE:-}" ]; then
    work=$(mktemp -d)
    trap 'rm -rf "$work"' EXIT
    case $ARCHIVE in
        https://* | http://*)
            curl --fail --silent --show-error --location --retry 3 --output "$work/verbena.tar.gz" "$ARCHIVE" ||
                fail "cannot download $ARCHIVE"
            ;;
        *)
            cp "$ARCHIVE" "$work/verbena.tar.gz" || fail "there is no archive $ARCHIVE"
            ;;
    esac
    if [ -n "${SHA256:-}" ]; then
        echo "$SHA256  $work/verbena.tar.gz" | sha256sum --check --quiet - ||
            fail "the archive does not have the checksum $SHA256"
    fi
    tar -xzf "$work/verbena.tar.gz" -C "$work"
    sh "$work"/verbena-*/install.sh --prefix "$prefix" > "$work/log" || fail "$(cat "$work/log")"
else
    cd "$(dirname "${BASH_SOURCE[0]}")/../../.."
    cargo xtask install --prefix "$prefix"
fi

if [ -n "${GITHUB_PATH:-}" ]; then
    echo "$prefix/bin" >> "$GITHUB_PATH"
fi
if [ -n "${GITHUB_OUTPUT:-}" ]; then
    echo "libraries=$prefix/lib/verbena" >> "$GITHUB_OUTPUT"
fi
if [ "${EVERY_STEP:-false}" = true ] && [ -n "${GITHUB_ENV:-}" ]; then
    # A shell evaluates the lines, and what it then has is written without quotes.
    for name in $("$prefix/bin/verbena" env | sed -n 's/^export \([A-Z_0-9]*\)=.*/\1/p'); do
        value=$(eval "$("$prefix/bin/verbena" env)"; printenv "$name")
        printf '%s=%s\n' "$name" "$value" >> "$GITHUB_ENV"
    done
fi
echo "installed $("$prefix/bin/verbena" --version) below $prefix"
