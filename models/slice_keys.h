#pragma once

#include <map>
#include <vector>

#include "kernels/causal_attention.h"

namespace strait::models {

// Keys and values that attention layers have computed for the slices of a micro-batch, to which its
// later slices attend. Every slice has an autograd graph of its own. A later one attends to leaves,
// whose gradients become a part of what the backward of the earlier one begins with: so backwards
// take the slices in the opposite order. Used by the compute thread only.
class SliceKeys {
 public:
  // The heads of a slice with the keys and values of all slices up to it; those of its own are kept
  // when the layer asks first. A forward that is repeated for a backward finds them. `trains`: the
  // layer has a backward.
  kernels::AttentionHeads extend(int layer, int slice, bool trains, kernels::AttentionHeads own);

  // What a graph's backward begins with in addition to its output.
  struct Roots {
    std::vector<at::Tensor> values;
    std::vector<at::Tensor> gradients;
  };
  // Of the layers `first` to `last` in the last forward of the slice. Later slices have had their
  // backward; what is kept of this slice is dropped.
  Roots take_roots(int first, int last, int slice);

 private:
  struct Kept {
    at::Tensor leaf;  // what later slices attend to
    at::Tensor made;  // the same in the graph of its slice; undefined without a graph
  };
  static void take_root(Kept& kept, Roots& roots);

  using KeyAndValue = std::vector<Kept>;
  std::map<int, std::vector<KeyAndValue>> layers_;  // by slice
};

}  // namespace strait::models
