#!/bin/sh
# A training "script" in shell: minimises (x - 3)^2 by steps of size $1, beginning at $2.
step=$1
x=$2
i=0
[ -n "$HOLDFAST_RESUME_DIR" ] && read -r i x < "$HOLDFAST_RESUME_DIR/state"
while [ "$i" -lt 8 ]; do
    i=$((i + 1))
    x=$(awk "BEGIN { print $x - $step * 2 * ($x - 3) }")
    mkdir "$HOLDFAST_CHECKPOINT_DIR/$i"
    echo "$i $x" > "$HOLDFAST_CHECKPOINT_DIR/$i/state"
    echo "holdfast: loss=$(awk "BEGIN { print ($x - 3) ^ 2 }") x=$x checkpoint=$i"
done
