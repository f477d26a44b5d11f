#pragma once

#include "tests/stages/stage_threads.h"

namespace strait::stages {

// Same names, and the same bits under each.
void expect_same_tensors(const Tensors& one, const Tensors& other);

// No stage of either run ended by an exception, and losses, norms, evaluations and checkpoints are
// the same bits. `what` names the case.
void expect_same_run(const RunResult& left, const RunResult& right, const std::string& what);

// `rest` resumed where `first` had stopped: what a run without that stop would return.
RunResult joined(const RunResult& first, RunResult rest);

}  // namespace strait::stages
