package leasehold.launchers.signal;

import leasehold.launchers.OriginalApiContract;

class SignalTest extends OriginalApiContract {
    @Override
    protected String whose() {
        return "signal";
    }
}
