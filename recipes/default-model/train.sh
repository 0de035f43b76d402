#!/bin/sh
# Train the default model, stage by stage; called by `make train-default`. To resume, run it again: finished work is skipped.
set -eu
OUT=runs/default-model # as in the recipes
data="$SHARED/data"
backbone="$SHARED/weights/dinov2_vits14_descendant.safetensors"
real=1312 sites=568 # as many locations as fit
if [ ! -d "$data" ]; then
    data="$OUT/public"
    real=1250 sites=540 # fetched maps have other gaps and fit a little fewer
    for name in naip-california kentucky oam-mosaics; do "$SKYPART" data fetch "$name" -o "$data"; done
fi
# Without the developers' backbone, load the published one from the hub now, before hours of rendering.
[ -f "$backbone" ] || backbone=dinov2_vits14
mkdir -p "$OUT"
"$SKYPART" new "$backbone" -o "$OUT/untrained.safetensors"

# Held out for tests: Long Beach, Eureka, Autzen, and the procedural style `coast`.
"$SKYPART" world make "$OUT/data/real" --from "$data/kentucky_lidar_public_domain" --from "$data/naip_california_cc_by" \
    --from "$data/oam_drone_mosaics_cc_by" --locations "$real" --like free --image-size 256 --no-maps \
    --skip long_beach,eureka --spacing 90
procedural() { # SEED SUFFIX LOCATIONS EDGE VIEWS
    "$SKYPART" world make "$OUT/data/procedural$2" --locations "$3" --seed "$1" --like free --image-size "$4" --no-maps \
        --styles town,suburb,industry,campus,farmland --spacing 120 --drone-per-altitude "$5"
}
procedural 1 "" 1200 256 6
# Newly rendered images of the real places; cities, which have several dates, come more often.
new_images() { # SEED SUFFIX VIEWS-IN-CITIES VIEWS-AT-SITES EDGE [raised: guessed heights, cities among their neighbours]
    cities="" sites_too=""
    [ "${6:-}" != raised ] || cities="--surround --guess-heights" sites_too=--guess-heights
    # shellcheck disable=SC2086
    "$SKYPART" world make "$OUT/data/cities$2" --from "$data/naip_california_cc_by" --locations 483 --seed "$1" --like free \
        --image-size "$5" --no-maps --skip long_beach,eureka --drone-per-altitude "$3" $cities
    # shellcheck disable=SC2086
    "$SKYPART" world make "$OUT/data/sites$2" --from "$data/kentucky_lidar_public_domain" \
        --from "$data/oam_drone_mosaics_cc_by" --locations "$sites" --seed "$1" --like free --image-size "$5" --no-maps \
        --spacing 110 --drone-per-altitude "$4" $sites_too
}

# READOUT=cls trains CLS-only in the same way: the embedding is the CLS branch and no loss touches parts. Its stages go to a
# folder of their own. STAGES="01 02" runs only these stages.
READOUT="${READOUT:-full}"
name=default runs="$OUT"
[ "$READOUT" = full ] || name="$READOUT" runs="$OUT/$READOUT"
mean_8="$runs/mean-after-08.safetensors" mean_9="$runs/mean-after-09.safetensors"
STAGES="${STAGES:-01 02 03 04 05 06 07 08 09 10}"
before="" now=""
for recipe in recipes/default-model/[01]*.toml; do
    stage="$(basename "$recipe" .toml)"
    number="${stage%%-*}"
    earlier="$before" before="$now"
    now="$runs/$stage/model.safetensors"
    case " $STAGES " in *" $number "*) ;; *) continue ;; esac
    case "$number" in
    05) new_images 2 "" 10 6 256 ;;
    06)
        new_images 3 -2 10 6 256
        procedural 3 -2 600 256 6
        ;;
    08) new_images 4 -3 16 10 256 ;;
    09) # starts from the mean of stages 7 (0.3) and 8 (0.7)
        new_images 5 -4 12 8 320
        procedural 5 -3 500 320 6
        "$PYTHON" -m skypart.model.mean "$earlier" "$before" --share 0.3 -o "$mean_8"
        before="$mean_8"
        ;;
    10) # starts from the mean of stage 9 and what that started from
        new_images 6 -5 8 5 320 raised
        procedural 6 -4 300 320 5
        "$PYTHON" -m skypart.model.mean "$mean_8" "$before" --share 0.5 -o "$mean_9"
        before="$mean_9"
        ;;
    esac
    set -- backbone.name="$backbone" run.device=cpu
    if [ "$READOUT" != full ]; then
        set -- "$@" head.readout="$READOUT" run.out="$runs/$stage" ${before:+"backbone.start=$before"}
        [ "$READOUT" != cls ] || set -- "$@" loss.part=false loss.alt=false
    fi
    OMP_NUM_THREADS=1 "$TORCHRUN" --nproc-per-node 2 -m skypart.cli train "$recipe" "$@"
done
case " $STAGES " in *" 10 "*) ;; *) exit 0 ;; esac
# What ships is the mean of stage 10 and what that started from.
"$PYTHON" -m skypart.model.mean "$mean_9" "$now" --share 0.5 -o "$OUT/$name.safetensors" \
    --about recipes/default-model/provenance.json
