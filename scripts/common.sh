# Shared by the scripts: one target folder for everything, and installing what a fresh machine lacks.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/tandem-target}"

say() { printf '\n== %s\n' "$*" >&2; }

# install PACKAGE: from Debian's packages, as root or with sudo.
install() {
  local sudo=""
  [ "$(id -u)" = 0 ] || sudo="sudo"
  command -v apt-get >/dev/null 2>&1 || return 1
  say "installing $1"
  $sudo apt-get update -qq && DEBIAN_FRONTEND=noninteractive $sudo apt-get install -y -qq "$1" >/dev/null
}

# need PROGRAM PACKAGE: installs PACKAGE when PROGRAM is missing; says so and returns 1 when it cannot.
need() {
  command -v "$1" >/dev/null 2>&1 || install "$2" ||
    { printf 'error: `%s` is missing\nhint: install it (Debian: apt-get install %s)\n' "$1" "$2" >&2; return 1; }
}

# skip NAME: says loudly that a check did not run; in CI, where everything can be installed, that is a failure.
skip() {
  printf '\n!! skipped: %s\n' "$*" >&2
  [ "${CI:-}" != true ] || { echo "error: CI must not skip a check" >&2; exit 1; }
}
