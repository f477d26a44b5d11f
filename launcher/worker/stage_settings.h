#pragma once

#include "framework/net/link_options.h"
#include "launcher/recipe/stage_job.h"
#include "stages/stage.h"

namespace strait::worker {

// Translates a job into the options of stages and links. Pure.
stages::StageOptions stage_options(const plan::StageJob& job, store::Step first,
                                   at::Device device = at::kCPU);

// The learning rate of every step of the plan.
stages::LearningRateOptions learning_rate_options(const plan::Plan& plan);

// A link of the plan, as this process uses it.
net::LinkOptions link_options(const plan::StageJob& job, const plan::Plan::Link& link);

}  // namespace strait::worker
