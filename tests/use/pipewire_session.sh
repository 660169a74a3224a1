# PipeWire without any sound card: a virtual microphone, the plugin behind it, and a recording of what it makes.
# Usage: dbus-run-session -- sh pipewire_session.sh FOLDER, with in.wav and the configuration in it; leaves out.wav there.
cd "$1" || exit 1
export XDG_RUNTIME_DIR="$1" PIPEWIRE_RUNTIME_DIR="$1" PIPEWIRE_CONFIG_DIR="$1"

wait_for() { # until a list of ports or links holds a line
    for _ in $(seq 100); do
        pw-link "$1" 2>/dev/null | grep -q "$2" && return 0
        sleep 0.1
    done
    echo "no $2" >&2
    exit 1
}

timeout 60 pipewire -c test.conf >pipewire.log 2>&1 &
for _ in $(seq 100); do [ -S pipewire-0 ] && break; sleep 0.1; done
timeout 60 wireplumber >wireplumber.log 2>&1 &
wait_for -o "drnmf.source:capture_MONO"
wait_for -i "drnmf.capture:input_MONO"
timeout 12 pw-cat -r --target drnmf.source --rate 48000 --channels 1 --format f32 out.wav &
recording=$!
wait_for -i "pw-cat:input_MONO"
timeout 8 pw-cat -p --target mic in.wav &
wait_for -o "pw-cat:output_MONO"
pw-link "pw-cat:output_MONO" "mic:input_MONO" || exit 1
sleep 4
kill -INT $recording
wait $recording
exit 0
