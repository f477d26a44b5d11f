#pragma once

#include <vector>

#include "launcher/run/inference.h"
#include "launcher/run/workers.h"

namespace strait::run {

// If the run has an inference client: forwards its requests to the first stage and the answers to
// it, and ends the stages when it has finished. One thread (the coordinator's).
class InferenceDriver {
 public:
  // Borrows both; `client` may be null.
  InferenceDriver(Workers& workers, InferenceClient* client) : workers_(workers), client_(client) {}

  void begin();
  // MessageError: nothing was requested.
  void on_answer(const InferenceAnswer& answer);

 private:
  void submit(const std::vector<InferenceRequest>& requests);

  Workers& workers_;
  InferenceClient* const client_;
};

}  // namespace strait::run
