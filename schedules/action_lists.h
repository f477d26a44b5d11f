#pragma once

#include "schedules/action.h"
#include "schedules/pipeline_shape.h"

// The action lists of one stage under each schedule: pure functions. Each training schedule comes
// with the largest number of passes (a micro-batch through a chunk) whose activations the stage
// holds at once.
namespace strait::schedules {

// ---- gpipe

// All forwards, then all backwards. Tolerates any network delay; holds every micro-batch of the
// step.
ActionList gpipe(const PipelineShape& shape, StageIndex stage);

int gpipe_in_flight(const PipelineShape& shape, StageIndex stage);

// ---- 1F1B

// 1F1B: a few forwards to fill the pipeline, then one backward and one forward in turn, then the
// remaining backwards. Stage s of S fills with
//
//     min(M, (S - s) + depth * (S - 1 - s))
//
// forwards, which is also the largest number that it holds. Depth 0 is just enough for a network
// without delay. Each further depth lets one more forward be in flight on every hop below, so that
// a stage computes while a slow link sends. Depth 1 is enough if a round trip takes at most as long
// as a stage's forward and backward.
ActionList one_forward_one_backward(const PipelineShape& shape, StageIndex stage);

int one_forward_one_backward_in_flight(const PipelineShape& shape, StageIndex stage);

// ---- zero bubble

// 1F1B with backwards split in two. The gradient for the stage above is sent before the weight
// gradients are computed, and these fill the waits while the pipeline fills and drains. Forwards
// and backwards have the order of 1F1B. The weight gradient of micro-batch m follows backward m +
// (1 + depth) * s, so that on a fast network every stage holds as many passes as stage 0 of 1F1B
// does,
//
//     min(M, 1 + (1 + depth) * (S - 1))
//
// With forwards F, backwards B and weight gradients W <= B of equal length on all stages, M >= S
// and depth 0, the bubble is (S - 1) * (F + B - W) instead of (S - 1) * (F + B + W): ZB-H1 of Qi et
// al., "Zero Bubble Pipeline Parallelism" (2023). Depth 1 holds what their ZB-H2 does.
ActionList zero_bubble(const PipelineShape& shape, StageIndex stage);

int zero_bubble_in_flight(const PipelineShape& shape, StageIndex stage);

// ---- interleaved 1F1B

// 1F1B for stages that hold several chunks each, so that data passes every stage several times.
// Filling and draining the pipeline takes one chunk's time per hop instead of a whole stage's: the
// bubble shrinks by the number of chunks, at the cost of as many times the messages and of more
// activations held.
//
// Micro-batches go in groups, and each group passes all chunks before the next one begins. A group
// is as large as the way around the pipeline is long, S + depth * S / 2, so that each micro-batch
// has returned when its turn comes. A remainder makes the groups a little larger; with fewer
// micro-batches there is one group. Stage s of S fills with
//
//     min(V * M, (V - 1) * G + (2 + depth) * (S - 1 - s) + 1)
//
// forwards, with V chunks and at most G micro-batches per group. This is also the largest number
// that it holds. Then one backward and one forward follow in turn. With one chunk it equals 1F1B.
ActionList interleaved(const PipelineShape& shape, StageIndex stage);

int interleaved_in_flight(const PipelineShape& shape, StageIndex stage);

// ---- evaluation

// Evaluation: every micro-batch passes forward through every chunk, in the same order on every
// stage. With one chunk these are the forwards 0 to M-1; with several they go in groups that keep
// all stages busy.
ActionList forward_only(const PipelineShape& shape, StageIndex stage);

}  // namespace strait::schedules
