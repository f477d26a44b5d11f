#pragma once

#include "framework/codec/settings.h"
#include "launcher/planner/planned_pipeline.h"
#include "launcher/recipe/plan.h"

namespace strait::planner {

// Codecs whose cost in quality was measured (tests/bench/RESULTS.md): percent of the evaluation
// loss above raw float32, in runs of about a hundred and of 1,500 steps.
struct MeasuredCodec {
  codec::CodecSettings settings;
  double loss_of_short_run = 0;
  double loss_of_long_run = 0;

  double loss(std::int64_t steps) const;
};

// Those that cost at most `budget` percent in a run of this length, the least first. Pure.
std::vector<MeasuredCodec> codecs_within(double budget, std::int64_t steps);

// Replaces `codec.budget` in the recipe of `open` by the codecs and bits within it whose forecast
// step is the shortest; among steps of about the same length, those that cost least. Returns a
// sentence that says what was chosen and why. `open`: the plan before its layout.
std::string choose_codec(plan::Plan& open, const PipelineQuestion& question);

// One sentence where boundaries are raw and a codec of few bits makes a step clearly shorter, with
// what such bits have cost by measurement. Else empty.
std::string codec_note(const plan::Plan& plan, const plan::Plan& open,
                       const PipelineQuestion& question);

}  // namespace strait::planner
