#!/bin/sh
# How the default model came to be; called by `make train-default`. Resumable: what is there is not made again.
set -eu
OUT=runs/default-model # as in the recipes
data="$SHARED/data"
backbone="$SHARED/weights/dinov2_vits14_descendant.safetensors"
real=1312 sites=568 # as many as there is room for
if [ ! -d "$data" ]; then
    data="$OUT/public"
    real=1250 sites=540 # fetched maps have holes elsewhere, and not quite as much room
    for name in naip-california kentucky oam-mosaics; do "$SKYPART" data fetch "$name" -o "$data"; done
fi
# Without the developers' backbone the published one is taken, from the hub: now, before hours of drawing.
[ -f "$backbone" ] || backbone=dinov2_vits14
mkdir -p "$OUT"
"$SKYPART" new "$backbone" -o "$OUT/untrained.safetensors"

# Held out for tests: Long Beach, Eureka, Autzen, and the procedural style `coast`.
"$SKYPART" world make "$OUT/data/real" --from "$data/kentucky_lidar_public_domain" --from "$data/naip_california_cc_by" \
    --from "$data/oam_drone_mosaics_cc_by" --locations "$real" --like free --image-size 256 --no-maps \
    --skip long_beach,eureka --spacing 90
"$SKYPART" world make "$OUT/data/procedural" --locations 1200 --seed 1 --like free --image-size 256 --no-maps \
    --styles town,suburb,industry,campus,farmland --spacing 120
# New pictures of the real places, apart: places in cities, at several dates, come more often.
new_pictures() { # SEED SUFFIX VIEWS-IN-CITIES VIEWS-AT-SITES
    "$SKYPART" world make "$OUT/data/cities$2" --from "$data/naip_california_cc_by" --locations 483 --seed "$1" --like free \
        --image-size 256 --no-maps --skip long_beach,eureka --drone-per-altitude "$3"
    "$SKYPART" world make "$OUT/data/sites$2" --from "$data/kentucky_lidar_public_domain" \
        --from "$data/oam_drone_mosaics_cc_by" --locations "$sites" --seed "$1" --like free --image-size 256 --no-maps \
        --spacing 110 --drone-per-altitude "$4"
}

# READOUT=cls trains CLS-only the same way: the embedding is the CLS branch, no loss touches parts. Its stages lie in a folder
# of their own. STAGES="first fine" runs these alone; the mean comes after `keen`.
READOUT="${READOUT:-full}"
all="first fine last alike cities clear sharp keen"
STAGES="${STAGES:-$all}"
before= now=
for stage in $all; do
    before="$now"
    run="$OUT/$stage"
    [ "$READOUT" = full ] || run="$OUT/$READOUT/$stage"
    now="$run/model.safetensors"
    case " $STAGES " in *" $stage "*) ;; *) continue ;; esac
    case "$stage" in
    cities) new_pictures 2 "" 10 6 ;;
    clear)
        new_pictures 3 -2 10 6
        "$SKYPART" world make "$OUT/data/procedural-2" --locations 600 --seed 3 --like free --image-size 256 --no-maps \
            --styles town,suburb,industry,campus,farmland --spacing 120
        ;;
    keen) new_pictures 4 -3 16 10 ;;
    esac
    recipe="recipes/default-model-$stage.toml"
    [ "$stage" != first ] || recipe=recipes/default-model.toml
    set -- backbone.name="$backbone" run.device=cpu
    if [ "$READOUT" != full ]; then
        set -- "$@" head.readout="$READOUT" run.out="$run" ${before:+"backbone.start=$before"}
        [ "$READOUT" != cls ] || set -- "$@" loss.part=false loss.alt=false
    fi
    OMP_NUM_THREADS=1 "$TORCHRUN" --nproc-per-node 2 -m skypart.cli train "$recipe" "$@"
done
case " $STAGES " in *" keen "*) ;; *) exit 0 ;; esac
name=default
[ "$READOUT" = full ] || name="$READOUT"
# What ships is the mean of the last two stages' weights, 0.3 and 0.7.
"$PYTHON" -m skypart.model.mean "$before" "$now" --share 0.3 -o "$OUT/$name.safetensors" \
    --about recipes/default-model.json
