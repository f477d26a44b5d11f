#pragma once

#include "framework/net/link_options.h"
#include "launcher/stage/stage_job.h"
#include "stages/stage.h"

namespace strait::launcher {

// A job in the words of the rooms that do it. Pure translations.
stages::StageOptions stage_options(const StageJob& job, store::Step first);

// One link of the plan as this process sees it.
net::LinkOptions link_options(const StageJob& job, const Plan::Link& link);

}  // namespace strait::launcher
