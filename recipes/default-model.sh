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
procedural() { # SEED SUFFIX LOCATIONS EDGE VIEWS
    "$SKYPART" world make "$OUT/data/procedural$2" --locations "$3" --seed "$1" --like free --image-size "$4" --no-maps \
        --styles town,suburb,industry,campus,farmland --spacing 120 --drone-per-altitude "$5"
}
procedural 1 "" 1200 256 6
# New pictures of the real places, apart: places in cities, at several dates, come more often.
new_pictures() { # SEED SUFFIX VIEWS-IN-CITIES VIEWS-AT-SITES EDGE [raised: heights guessed, cities among others]
    cities= sites_too=
    [ "${6:-}" != raised ] || cities="--surround --guess-heights" sites_too=--guess-heights
    # shellcheck disable=SC2086
    "$SKYPART" world make "$OUT/data/cities$2" --from "$data/naip_california_cc_by" --locations 483 --seed "$1" --like free \
        --image-size "$5" --no-maps --skip long_beach,eureka --drone-per-altitude "$3" $cities
    # shellcheck disable=SC2086
    "$SKYPART" world make "$OUT/data/sites$2" --from "$data/kentucky_lidar_public_domain" \
        --from "$data/oam_drone_mosaics_cc_by" --locations "$sites" --seed "$1" --like free --image-size "$5" --no-maps \
        --spacing 110 --drone-per-altitude "$4" $sites_too
}

# READOUT=cls trains CLS-only the same way: the embedding is the CLS branch, no loss touches parts. Its stages lie in a folder
# of their own. STAGES="first fine" runs these alone.
READOUT="${READOUT:-full}"
name=default runs="$OUT"
[ "$READOUT" = full ] || name="$READOUT" runs="$OUT/$READOUT"
mean="$runs/mean.safetensors" mean_field="$runs/mean-field.safetensors"
all="first fine last alike cities clear sharp keen field oblique"
STAGES="${STAGES:-$all}"
before= now=
for stage in $all; do
    before="$now"
    now="$runs/$stage/model.safetensors"
    case " $STAGES " in *" $stage "*) ;; *) continue ;; esac
    case "$stage" in
    cities) new_pictures 2 "" 10 6 256 ;;
    clear)
        new_pictures 3 -2 10 6 256
        procedural 3 -2 600 256 6
        ;;
    keen) new_pictures 4 -3 16 10 256 ;;
    field) # starts from the mean of the two stages before, 0.3 and 0.7
        new_pictures 5 -4 12 8 320
        procedural 5 -3 500 320 6
        "$PYTHON" -m skypart.model.mean "$runs/sharp/model.safetensors" "$before" --share 0.3 -o "$mean"
        before="$mean"
        ;;
    oblique) # starts from the mean of the stage before and what that started from
        new_pictures 6 -5 8 5 320 raised
        procedural 6 -4 300 320 5
        "$PYTHON" -m skypart.model.mean "$mean" "$before" --share 0.5 -o "$mean_field"
        before="$mean_field"
        ;;
    esac
    recipe="recipes/default-model-$stage.toml"
    [ "$stage" != first ] || recipe=recipes/default-model.toml
    set -- backbone.name="$backbone" run.device=cpu
    if [ "$READOUT" != full ]; then
        set -- "$@" head.readout="$READOUT" run.out="$runs/$stage" ${before:+"backbone.start=$before"}
        [ "$READOUT" != cls ] || set -- "$@" loss.part=false loss.alt=false
    fi
    OMP_NUM_THREADS=1 "$TORCHRUN" --nproc-per-node 2 -m skypart.cli train "$recipe" "$@"
done
case " $STAGES " in *" oblique "*) ;; *) exit 0 ;; esac
# What ships is drawn towards the mean that the last stage started from.
"$PYTHON" -m skypart.model.mean "$mean_field" "$now" --share 0.5 -o "$OUT/$name.safetensors" --about recipes/default-model.json
