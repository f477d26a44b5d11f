#pragma once

#include "tests/framework/net/dying_link.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {

inline constexpr int kReplicas = 3;

// Three replicas of a small model in one or two stages each, of which any may be lost.
RunSettings losing_replicas(const std::string& method, int stages, int steps);

// This process dies when so many calls to its links are made. Whenever it gets links, they take the
// count that is there then: another one is another life.
void kill(RunSettings& settings, std::size_t process, const net::DyingLink::Calls& left);

// That two replicas hold the same model, and a finite one.
void expect_same_model(const Tensors& one, const Tensors& other);

}  // namespace strait::stages
