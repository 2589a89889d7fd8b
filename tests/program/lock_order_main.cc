// Takes locks of two ranks, in the order that the argument says.
#include <cstring>

#include "core/lock_order.h"

using ngraph_mxnet::Rank;
using ngraph_mxnet::RankedMutex;

int main(int, char** arguments) {
  RankedMutex outer(Rank::kCompileCache), inner(Rank::kPreparedSets), other(Rank::kPreparedSets);
  const bool backward = std::strcmp(arguments[1], "backward") == 0, alike = std::strcmp(arguments[1], "alike") == 0;
  RankedMutex& first = backward || alike ? inner : outer;
  RankedMutex& second = backward ? outer : alike ? other : inner;
  for (int i = 0; i < 2; ++i) {
    first.lock();
    second.lock();
    first.unlock();  // in any order
    second.unlock();
  }
  return 0;
}
