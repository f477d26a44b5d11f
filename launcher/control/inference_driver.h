#pragma once

#include <vector>

#include "launcher/control/inference.h"
#include "launcher/control/workers.h"

namespace strait::control {

// Carries requests of the inference client, if the run has one, to the first stage and answers back
// to it, and ends the stages once the client has finished. One thread (the coordinator's).
class InferenceDriver {
 public:
  // Borrows both; `client` may be null.
  InferenceDriver(Workers& workers, InferenceClient* client) : workers_(workers), client_(client) {}

  void begin();
  // MessageError: nothing was asked.
  void on_answer(const InferenceAnswer& answer);

 private:
  void submit(const std::vector<InferenceRequest>& requests);

  Workers& workers_;
  InferenceClient* const client_;
};

}  // namespace strait::control
