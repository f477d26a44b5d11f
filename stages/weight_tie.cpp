#include "stages/weight_tie.h"

#include <ATen/ATen.h>

namespace strait::stages {

void LocalTie::combine(Gradients& gradients) { gradients.of(embedding_).add_(gradients.of(head_)); }

}  // namespace strait::stages
