#pragma once

#include <gtest/gtest.h>

#include <string>
#include <tuple>

#include "tests/framework/net/dying_link.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {

inline constexpr int kReplicas = 3;

// Three replicas of a small model in one or two stages of so many chunks each, of which any may be
// lost.
RunSettings losing_replicas(const std::string& method, int stages, int steps, int chunks = 1);

// Of a test whose parameters are method, stages and chunks.
std::string name_of_shape(const testing::TestParamInfo<std::tuple<std::string, int, int>>& shape);

// This process dies when so many calls to its links are made. Whenever it gets links, they take the
// count that is there then: another one is another life.
void kill(RunSettings& settings, std::size_t process, const net::DyingLink::Calls& left);

// That two replicas hold the same model, and a finite one.
void expect_same_model(const Tensors& one, const Tensors& other);

}  // namespace strait::stages
