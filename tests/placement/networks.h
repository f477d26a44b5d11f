#pragma once

#include <cmath>
#include <random>
#include <string>

#include "placement/problem.h"

namespace strait::placement {

// A problem with one device per host, all paths alike, and equal layers.
inline Problem uniform(std::size_t devices, int layers, std::int64_t micro_batches) {
  Problem problem;
  problem.hosts.resize(devices);
  for (std::size_t i = 0; i < devices; ++i) problem.devices.push_back({.host = i});
  problem.paths.assign(devices * devices, {.bytes_per_second = 1});
  for (std::size_t i = 0; i < devices; ++i) problem.paths[i * devices + i] = {};
  problem.layers.assign(static_cast<std::size_t>(layers), {.flops = 1});
  problem.micro_batches = micro_batches;
  return problem;
}

// Devices, paths, lines and layers of unequal speed and size.
inline Problem random_problem(std::uint64_t seed, std::size_t devices, int layers,
                              std::int64_t micro_batches) {
  std::mt19937_64 engine(seed);
  const auto among = [&](double low, double high) {
    return low * std::pow(high / low, static_cast<double>(engine() >> 11U) * 0x1p-53);
  };
  Problem problem = uniform(devices, layers, micro_batches);
  const bool equal = engine() % 3 == 0;
  const bool lines = engine() % 3 == 0;
  const bool tight = engine() % 4 == 0;
  for (Device& device : problem.devices) {
    device.flops_per_second = equal ? 1 : among(0.2, 2);
    if (tight) device.memory_bytes = among(2, 20);
  }
  for (Path& path : problem.paths) path = {among(0.05, 20), among(1e-4, 0.5)};
  for (std::size_t i = 0; i < devices; ++i) problem.paths[i * devices + i] = {};
  if (lines) {
    for (Line& line : problem.hosts) line = {among(0.1, 10), among(0.1, 10)};
  }
  for (Layer& layer : problem.layers) layer = {among(0.5, 2), 1, 0.2, among(0.1, 1)};
  problem.forward_bytes = among(0.01, 3);
  problem.backward_bytes = problem.forward_bytes * among(1, 2);
  problem.sync_overlaps = engine() % 2 == 0;
  problem.agrees_each_step = engine() % 2 == 0;
  return problem;
}

}  // namespace strait::placement
