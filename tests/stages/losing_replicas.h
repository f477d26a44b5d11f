#pragma once

#include <gtest/gtest.h>

#include "tests/framework/net/dying_link.h"
#include "tests/stages/stage_threads.h"

namespace strait::stages {

inline constexpr int kReplicas = 3;

// Three replicas of a small model in one or two stages with this number of chunks each. Any may be
// lost.
RunSettings losing_replicas(const std::string& method, int stages, int steps, int chunks = 1);

using LosingShape = std::tuple<std::string, int, int>;  // method, stages, chunks

// The methods whose replicas may leave, on one and on two stages. Without STRAIT_CAMPAIGNS each has
// one of the two: the other one with the other parity.
std::vector<LosingShape> losing_shapes(int parity);

// Name of a test with such parameters.
std::string shape_name(const testing::TestParamInfo<LosingShape>& shape);

// Kills this process after `left` calls to its links. `left` is read again when it gets new links.
void kill(RunSettings& settings, std::size_t process, const net::DyingLink::Calls& left);

// Both replicas hold the same, finite model.
void expect_same_model(const Tensors& one, const Tensors& other);

}  // namespace strait::stages
