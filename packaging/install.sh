#!/bin/sh
# Installs the files beside this script below a prefix, or removes what it installed. Only its own files are touched: their names are in
# PREFIX/lib/verbena/files. No root is needed for a prefix that the user may write. `cargo xtask install` runs the same script.
set -eu

usage() {
    cat <<END
Usage: install.sh [--prefix DIR] [--uninstall]

Installs the command verbena and its libraries below DIR (default: /usr/local as root, else ~/.local).
END
}

from=$(cd "$(dirname "$0")" && pwd)
prefix=
uninstall=no
while [ $# -gt 0 ]; do
    case $1 in
        --prefix)
            [ $# -ge 2 ] || { usage >&2; exit 2; }
            prefix=$2
            shift 2
            ;;
        --prefix=*)
            prefix=${1#--prefix=}
            shift
            ;;
        --uninstall)
            uninstall=yes
            shift
            ;;
        -h | --help)
            usage
            exit 0
            ;;
        *)
            echo "install.sh: unknown argument $1" >&2
            usage >&2
            exit 2
            ;;
    esac
done
if [ -z "$prefix" ]; then
    if [ "$(id -u)" = 0 ]; then
        prefix=/usr/local
    else
        prefix=${HOME:?HOME is not set; use --prefix}/.local
    fi
fi
case $prefix in
    /*) ;;
    *) prefix=$PWD/$prefix ;;
esac
list=$prefix/lib/verbena/files

# Removes the files of a list, and folders that are empty then.
remove() {
    while IFS= read -r name; do
        case $name in
            '' | /* | ../* | */../* | */..)
                echo "install.sh: $list contains the name '$name', which is not below the prefix" >&2
                exit 1
                ;;
        esac
        rm -f "$prefix/$name"
        folder=$(dirname "$name")
        while [ "$folder" != . ]; do
            rmdir "$prefix/$folder" 2>/dev/null || break
            folder=$(dirname "$folder")
        done
    done
}

if [ "$uninstall" = yes ]; then
    if [ ! -f "$list" ]; then
        echo "nothing is installed below $prefix"
        exit 0
    fi
    # Read before it is removed with its folder.
    names=$(cat "$list")
    rm -f "$list"
    printf '%s\n' "$names" | remove
    rmdir "$prefix/lib/verbena" 2>/dev/null || true
    echo "uninstalled from $prefix"
    exit 0
fi

new=$(cd "$from" && find bin lib share include \( -type f -o -type l \) 2>/dev/null | LC_ALL=C sort)
[ -n "$new" ] || { echo "install.sh: there are no files beside the script, in $from" >&2; exit 1; }
old=
[ ! -f "$list" ] || old=$(cat "$list")
mkdir -p "$prefix/lib/verbena"
# Copied under another name, then renamed: running programs keep the old file.
printf '%s\n' "$new" | while IFS= read -r name; do
    mkdir -p "$prefix/$(dirname "$name")"
    cp -P "$from/$name" "$prefix/$name.new"
    mv -f "$prefix/$name.new" "$prefix/$name"
done
printf '%s\n' "$new" > "$list.new"
mv -f "$list.new" "$list"
# Files of an earlier version that this one does not have.
if [ -n "$old" ]; then
    printf '%s\n' "$old" | LC_ALL=C sort | LC_ALL=C comm -23 - "$list" | remove
fi

lib=$prefix/lib/verbena
cat <<END

installed  $prefix/bin/verbena
installed  $lib

Programs do not load these libraries by default. One program:   $prefix/bin/verbena run PROGRAM
A whole shell:                                                    eval \$($prefix/bin/verbena env)
The whole machine, instead of its real libibverbs (as root):       echo $lib > /etc/ld.so.conf.d/00-verbena.conf && ldconfig
and back: remove that file and run ldconfig again. UCX then still needs LD_PRELOAD=$lib/libverbena-uverbs.so.
END
