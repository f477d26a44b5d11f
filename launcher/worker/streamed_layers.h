#pragma once

#include <functional>
#include <future>
#include <vector>

#include "models/model.h"

namespace strait::worker {

// The weights of a model on the CPU that does not fit into memory. Embedding and head stay, and so
// do as many blocks as there is room for. The other blocks are read when a pass comes to them, the
// next one while one computes. The first pass begins with none of them. One thread uses it.
class StreamedLayers {
 public:
  // A tensor by its name; from any thread.
  using Read = std::function<at::Tensor(const std::string& name)>;

  // Loads what stays. The model's weights have no values yet; it is borrowed. `memory`: for all
  // weights.
  StreamedLayers(const models::Model& model, Read read, std::int64_t memory);

  // With less memory it is not possible. Embedding and head stay, with a block that computes and
  // one that is read. While a table is loaded it is there twice: as it was read, and as it is held.
  static std::int64_t least_bytes(const models::Model& model);

  // Waits until the weights of a layer are loaded. Frees the streamed layer that was loaded before.
  void need(int layer);

  std::size_t blocks() const { return model_.layers().size() - 2; }
  std::size_t streamed() const { return order_.size(); }

 private:
  std::vector<models::Parameter> read(int layer) const;
  void choose(std::int64_t memory);

  const models::Model& model_;
  const Read read_;
  std::vector<int> order_;  // the layers that are streamed
  int loaded_ = -1;         // of those; -1: none
  int coming_ = -1;
  std::future<std::vector<models::Parameter>> next_;  // of `coming_`
};

}  // namespace strait::worker
