#pragma once

#include <cstdint>

// Indices. Each has its own type, so that a micro-batch cannot be passed as a stage, and none takes
// part in arithmetic by accident.
namespace strait {

enum class StageIndex : std::int32_t {};
enum class ReplicaIndex : std::int32_t {};
enum class ChunkIndex : std::int32_t {};  // a part of the model inside one stage
enum class MicroBatch : std::int32_t {};  // counted from 0 within a step

constexpr std::int32_t number(StageIndex i) { return static_cast<std::int32_t>(i); }
constexpr std::int32_t number(ReplicaIndex i) { return static_cast<std::int32_t>(i); }
constexpr std::int32_t number(ChunkIndex i) { return static_cast<std::int32_t>(i); }
constexpr std::int32_t number(MicroBatch i) { return static_cast<std::int32_t>(i); }

}  // namespace strait
