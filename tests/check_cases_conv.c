#include "check.h"
const CaseSet CHECK_CONV[1];
const int CHECK_CONV_COUNT = 0;
