#pragma once

#include "framework/net/node.h"
#include "launcher/plan/stage_job.h"
#include "launcher/worker/control_client.h"
#include "launcher/worker/stage_reporter.h"

namespace strait::worker {

// The main function of a stage process that answers requests to a trained model: loads its layers
// of the checkpoint, connects its links, and answers until the coordinator ends it. Returns the
// step of the checkpoint.
store::Step infer(const plan::StageJob& job, net::Node& node, ControlClient& control,
                  StageReporter& reporter);

}  // namespace strait::worker
