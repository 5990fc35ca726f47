# Shared by the scripts: one target folder for everything, and installing what a fresh machine lacks.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$HOME/.cache/tandem-target}"

say() { printf '\n== %s\n' "$*" >&2; }

# take_target_dir CHECKOUT: makes the target folder this checkout's own, until the script ends or leaves it.
#
# All checkouts share one, so that dependencies are built once. But cargo knows our own crates by their path inside the
# workspace and trusts time stamps: in a checkout whose files are older than another's build it would run and test the
# other's program. So a stamp says whose build is in there, and after a change of checkout our own crates are built again.
take_target_dir() {
  # A script that this one was called by holds it already.
  [ "${TANDEM_TARGET_DIR_TAKEN:-}" != "$CARGO_TARGET_DIR" ] || return 0
  mkdir -p "$CARGO_TARGET_DIR"
  # Nobody else changes it meanwhile; without the program (macOS) as before there were locks.
  if command -v flock >/dev/null 2>&1; then
    exec 9>"$CARGO_TARGET_DIR/checkout.lock"
    flock -n 9 || { say "waiting for another checkout that uses $CARGO_TARGET_DIR"; flock 9; }
  fi
  export TANDEM_TARGET_DIR_TAKEN="$CARGO_TARGET_DIR"
  # With its inode: another checkout may be moved to the same place.
  local mine before
  mine="$(ls -di "$1")"
  before="$(cat "$CARGO_TARGET_DIR/checkout" 2>/dev/null || true)"
  if [ "$before" != "$mine" ]; then
    # In release/, or in HOST/release/ where a host was named (scripts/fuzz).
    if compgen -G "$CARGO_TARGET_DIR/*/.fingerprint/tandem-*" >/dev/null || compgen -G "$CARGO_TARGET_DIR/*/*/.fingerprint/tandem-*" >/dev/null; then
      say "$CARGO_TARGET_DIR holds the build of another checkout: building Tandem's own crates again"
      rm -rf "$CARGO_TARGET_DIR"/*/.fingerprint/tandem-* "$CARGO_TARGET_DIR"/*/*/.fingerprint/tandem-*
    fi
    printf '%s\n' "$mine" >"$CARGO_TARGET_DIR/checkout"
  fi
}

# leave_target_dir: others may build there again.
leave_target_dir() { exec 9>&-; unset TANDEM_TARGET_DIR_TAKEN; }

# Device nodes of graphics cards: on Linux, NVIDIA's own, and under Windows' subsystem for Linux.
gpu_nodes="/dev/dri/renderD* /dev/nvidia[0-9]* /dev/dxg"

# has_gpu: whether this machine has something that the GPU build could use: a card, or Vulkan's loader.
has_gpu() {
  local node
  [ "$(uname -s)" = Linux ] || return 0
  for node in $gpu_nodes; do [ ! -e "$node" ] || return 0; done
  { ldconfig -p 2>/dev/null || /sbin/ldconfig -p 2>/dev/null || true; } | grep -q 'libvulkan\.so\.1'
}

# features: what cargo is to be told so that it builds what this machine can use. TANDEM_BUILD=cpu or gpu decides instead.
features() {
  local build="${TANDEM_BUILD:-}"
  if [ -z "$build" ]; then
    # What is built already is used: two kinds of build would take twice the time.
    if has_gpu || compgen -G "$CARGO_TARGET_DIR/release/.fingerprint/burn-wgpu-*" >/dev/null; then build=gpu; else build=cpu; fi
  fi
  case "$build" in
    gpu) ;;
    cpu) echo --no-default-features ;;
    *) printf 'error: TANDEM_BUILD is `%s`, it must be `cpu` or `gpu`\n' "$build" >&2; return 1 ;;
  esac
}

# as_root COMMAND: with sudo where that is needed.
as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

# refresh: what packages there are.
refresh() { command -v apt-get >/dev/null 2>&1 && as_root apt-get update -qq; }

# install PACKAGE: from Debian's packages.
install() {
  say "installing $1"
  refresh && as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$1" >/dev/null
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

# can_make_hosts: whether this user may make hosts of their own, as network namespaces.
can_make_hosts() {
  [ "$(id -u)" = 0 ] && ip netns add tandem-probe 2>/dev/null && ip netns del tandem-probe
}

# software_gpus: two Vulkan devices played by the CPU (Mesa's lavapipe twice) for everything that follows, and SwiftShader
# as a second driver. Without them the tests that need them say that they are skipped.
software_gpus() {
  local manifest copy folder="$CARGO_TARGET_DIR-vulkan"
  manifest() { compgen -G '/usr/share/vulkan/icd.d/lvp_icd*.json' | head -n 1; }
  [ -n "$(manifest)" ] || install mesa-vulkan-drivers || return 1
  ldconfig -p | grep -q 'libvulkan\.so\.1' || install libvulkan1 || return 1
  mkdir -p "$folder"
  copy="$folder/second.json"
  cp "$(manifest)" "$copy"
  # The same driver under another name is another device.
  export VK_ICD_FILENAMES="$(manifest):$copy" NODEVICE_SELECT=1
  TANDEM_SWIFTSHADER="${TANDEM_SWIFTSHADER:-$(compgen -G '/usr/lib/chromium/vk_swiftshader_icd.json' || true)}"
  if [ -z "$TANDEM_SWIFTSHADER" ]; then
    TANDEM_SWIFTSHADER="$folder/usr/lib/chromium/vk_swiftshader_icd.json"
    if [ ! -f "$TANDEM_SWIFTSHADER" ]; then
      # Unpacked, not installed: it needs nothing but the C library.
      say "fetching SwiftShader (from chromium-common)"
      (cd "$folder" && { apt-get download -qq chromium-common || { refresh && apt-get download -qq chromium-common; }; } &&
        dpkg-deb -x chromium-common_*.deb . && rm chromium-common_*.deb) >/dev/null || return 1
    fi
  fi
  export TANDEM_SWIFTSHADER
}
