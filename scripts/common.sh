# Shared by the scripts: one target folder for everything, and installing what a fresh machine lacks.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/tandem-target}"

say() { printf '\n== %s\n' "$*" >&2; }

# need PROGRAM PACKAGE: installs Debian's PACKAGE when PROGRAM is missing; says so and returns 1 when it cannot.
need() {
  command -v "$1" >/dev/null 2>&1 && return 0
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  if command -v apt-get >/dev/null 2>&1; then
    say "installing $2 (for $1)"
    $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$2" >/dev/null && return 0
  fi
  printf 'error: `%s` is missing and could not be installed\nhint: install it (Debian: apt-get install %s)\n' "$1" "$2" >&2
  return 1
}
